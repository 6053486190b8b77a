"""Changes one thing at a time in the checks, and asks the fast tests to notice (`make mutants`).

mutmut 3.8 does the same, as fast as this. But it also changes the texts of errors, as 14 of its
first 16 survivors in signer/verify/machines/claims.py. It never removes a check or a `raise`, and
never changes a constant of a module. It numbers all mutants of a function, so one new line renames
those that follow. cosmic-ray rewrites the files of the product and starts pytest for each mutant.
"""
