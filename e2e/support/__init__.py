"""What the demo and the scenarios share: kubectl, chat, load and the objects they apply."""
