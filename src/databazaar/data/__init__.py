"""Users' files as tables, tables as arrays, and the synthetic banks of the demo.

Nothing is imported here, so that `schema_message` can be read without pandas.
"""
