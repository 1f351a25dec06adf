"""Pictures of the dashboards with real data, for the documentation: ``python -m deploy.dashboards.pictures``.

Two nodes run with their servers, a real Prometheus scrapes them, and what Grafana would ask and show is asked and drawn
by this program: every panel's own queries, in the grid of the dashboard. It is not Grafana, and its pictures say so.
"""
