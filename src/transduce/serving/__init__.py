"""HTTP server: one or several model folders for many clients."""
