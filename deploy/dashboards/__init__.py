"""The Grafana dashboards of Blockyard, made by a program: ``python -m deploy.dashboards`` writes their JSON files.

A dashboard is a tuple of rows of ``Panel`` values (``panels.py``), turned into Grafana's model by its own SDK. The same
JSON serves compose and Kubernetes: queries select by the labels ``namespace`` and ``node`` only, which the scrape
configuration gives every target, and a dashboard shows everything where a target has no such label.
"""
