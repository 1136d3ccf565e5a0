"""The operator's process: settings, watches, queue, terms of leadership, health."""
