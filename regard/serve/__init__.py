"""The server: a page and an API over trained runs. Needs the extra `serve`."""
