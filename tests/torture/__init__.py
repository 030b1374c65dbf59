"""The commands and the library under hostile input, faults and load: ``python -m tests.torture --help``.

A part draws its cases from a seed, tries each in a process of its own, and reports what was tried, right and
wrong. Right is, for a command: exit code 0 with a valid result, or exit code 2 and one line on stderr that
says what is wrong with the input. A short part of it runs with the other tests, in ``test_torture.py``.
"""
