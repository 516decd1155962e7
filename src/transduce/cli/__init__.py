"""One module per verb: parse, call, print. No logic lives here."""
