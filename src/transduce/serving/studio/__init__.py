"""The studio: pages that show what a served model does, and the routes and jobs behind them."""
