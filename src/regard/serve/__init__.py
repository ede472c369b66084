"""HTTP server for trained models: a JSON API and a web page."""
