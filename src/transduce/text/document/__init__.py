"""Documents as text to translate and everything else, which is kept byte for byte; one module per format."""
