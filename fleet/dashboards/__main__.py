"""Writes dashboards/*.json again."""

from pathlib import Path

from fleet import dashboards

for dashboard in dashboards.DASHBOARDS:
    path = Path(dashboards.file(dashboard))
    path.parent.mkdir(exist_ok=True)
    path.write_text(dashboards.text(dashboard))
