"""The commands of `pagefleet`, one a module: each reads what is asked, plans, and prints."""
