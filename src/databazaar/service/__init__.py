"""A market that organisations operate: several consumers, shared providers, one journal, in the browser.

A thin layer above the core, which never imports it. `database` keeps the tables, `journal` the money across jobs, the
modules beside them what people do (`members`, `offers`, `contracts`, `jobs`, `cash`), `hub` starts and settles the
runs, and `http` shows all of it: `/v1` for programs and pages for people.
"""
