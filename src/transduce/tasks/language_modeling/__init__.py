"""Language modelling: plain text, predicted token by token."""
