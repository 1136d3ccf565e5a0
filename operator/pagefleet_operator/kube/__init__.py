"""The API server and what was seen of it: one client, a store, server-side apply, events."""
