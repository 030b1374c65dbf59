"""The commands. Each module has its parser and calls the library; nothing imports from here."""
