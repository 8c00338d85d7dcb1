"""The panel types of the dashboards."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

#: prefix of the description of a panel that may be empty; a test requires data in all others
ONLY_WHEN = "Only when "
#: columns of Grafana's grid
WIDTH = 24

_DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")


@dataclass(frozen=True)
class Query:
    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    queries: tuple[Query, ...]
    kind: Literal["lines", "number", "states"] = "lines"
    #: description
    about: str = ""
    #: the condition under which the panel has data; "": always
    only_when: str = ""
    width: int = 8
    #: thresholds of yellow and red
    limits: tuple[float, float] | None = None


def lines(title: str, unit: str, *queries: tuple[str, str], about: str = "", only_when: str = "") -> Panel:
    return Panel(title, unit, tuple(Query(*q) for q in queries), "lines", about, only_when)


def number(title: str, unit: str, expression: str, limits: tuple[float, float] | None = None, about: str = "") -> Panel:
    return Panel(title, unit, (Query(expression, ""),), "number", about, width=6, limits=limits)


def states(title: str, *queries: tuple[str, str], about: str = "", only_when: str = "") -> Panel:
    return Panel(title, "", tuple(Query(*q) for q in queries), "states", about, only_when, width=12)


def _built(panel: Panel) -> Builder[models.Panel]:
    made: timeseries.Panel | stat.Panel | statetimeline.Panel
    if panel.kind == "number":
        made = stat.Panel().graph_mode(common_models.BigValueGraphMode.AREA).height(4)
    elif panel.kind == "states":
        made = statetimeline.Panel().height(8)
    else:
        legend = common.VizLegendOptions().show_legend(True)
        legend = legend.display_mode(common_models.LegendDisplayMode.LIST)
        legend = legend.placement(common_models.LegendPlacement.BOTTOM)
        made = timeseries.Panel().legend(legend).fill_opacity(5).height(8).min(0)
    about = " ".join(filter(None, (panel.about, f"{ONLY_WHEN}{panel.only_when}." if panel.only_when else "")))
    made.title(panel.title).description(about).unit(panel.unit).datasource(_DATASOURCE).span(panel.width)
    if panel.limits is not None:
        made.thresholds(_thresholds(*panel.limits))
    for number_, query in enumerate(panel.queries):
        target = prometheus.Dataquery().expr(query.expression).ref_id(chr(ord("A") + number_)).range()
        made.with_target(target.legend_format(query.legend or "__auto").datasource(_DATASOURCE))
    return made


def _thresholds(yellow: float, red: float) -> dashboard.ThresholdsConfig:
    steps = [
        models.Threshold(value=None, color="green"),
        models.Threshold(value=yellow, color="yellow"),
        models.Threshold(value=red, color="red"),
    ]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """A dashboard variable of label values, initially all of them."""
    made = dashboard.QueryVariable(name).label(label).query(query).datasource(_DATASOURCE)
    made.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)
    return made.multi(True).include_all(True).all_value(".*")


def board(
    title: str, uid: str, about: str, variables: Iterable[dashboard.QueryVariable], rows: dict[str, tuple[Panel, ...]]
) -> models.Dashboard:
    made = dashboard.Dashboard(title).uid(uid).description(about).tags(["lowwater"]).timezone("browser")
    made.tooltip(models.DashboardCursorSync.CROSSHAIR).refresh("10s").time("now-1h", "now").editable()
    made.with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    for choice in variables:
        made.with_variable(choice)
    for row, panels in rows.items():
        made.with_row(dashboard.Row(row))
        for panel in panels:
            made.with_panel(_built(panel))
    found = made.build()
    for number_, place in enumerate(found.panels or [], 1):
        place.id_val = number_
    return found


def as_json(made: models.Dashboard) -> str:
    return json.dumps(made, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"
