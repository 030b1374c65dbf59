"""The commands. Each module defines its arguments and calls the library, which imports nothing from here."""
