"""Turns boards into Grafana's model: placing, queries, colors, variables.

The SDK is used here only. Invariants: the JSON of a board depends on its value alone.
Threading: pure functions.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from deploy.dashboards.panels import SERIES_COLORS, Board, Kind, Panel, Unit
from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

UID_PREFIX: Final = "blockyard"
_SOURCE: Final = "datasource"
_ALL: Final = ".*"
"""Also matches targets without the label, so that a plain scrape configuration shows something."""
_WIDTH: Final = 24
_REF_IDS: Final = "ABCDEFGH"
_SINCE: Final = "now-30m"


def to_json(board: Board) -> str:
    """The file of a board."""
    return str(JSONEncoder(sort_keys=True, indent=2).encode(_dashboard(board).build())) + "\n"


def _dashboard(board: Board) -> dashboard.Dashboard:
    built = (
        dashboard.Dashboard(board.title)
        .uid(f"{UID_PREFIX}-{board.name}")
        .description(board.description)
        .tags([UID_PREFIX])
        .editable()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .refresh("10s")
        .time(_SINCE, "now")
        .timezone("browser")
        .link(
            dashboard.DashboardLink("Blockyard")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([UID_PREFIX])
            .keep_time(True)
            .include_vars(True)
        )
        .with_variable(dashboard.DatasourceVariable(_SOURCE).label("Prometheus").type("prometheus"))
        .with_variable(_choice("namespace", "Namespace", "label_values(blockyard_build_info, namespace)"))
        .with_variable(_choice("node", "Node", 'label_values(blockyard_build_info{namespace=~"$namespace"}, node)'))
    )
    top, number = 0, 0
    for row in board.rows:
        number += 1
        place = model.GridPos(x=0, y=top, w=_WIDTH, h=1)
        built.with_row(dashboard.Row(row.title).id(number).grid_pos(place))
        left, top, tallest = 0, top + 1, 0
        for panel in row.panels:
            if left + panel.width > _WIDTH:
                left, top, tallest = 0, top + tallest, 0
            number += 1
            place = model.GridPos(x=left, y=top, w=panel.width, h=panel.height)
            built.with_panel(_panel(panel).id(number).grid_pos(place))
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest
    return built


def _choice(name: str, label: str, query: str) -> dashboard.QueryVariable:
    everything = model.VariableOption(selected=True, text="All", value="$__all")
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(_source())
        .multi(True)
        .include_all(True)
        .all_value(_ALL)
        .current(everything)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
    )


def _source() -> model.DataSourceRef:
    return model.DataSourceRef(type_val="prometheus", uid=f"${{{_SOURCE}}}")


# --- panels -----------------------------------------------------------------------------------------------------------
_Builder: TypeAlias = timeseries.Panel | stat.Panel | bargauge.Panel | table.Panel


def _panel(panel: Panel) -> _Builder:
    builder = _MAKERS[panel.kind](panel)
    builder.title(panel.title).description(panel.description).unit(panel.unit).datasource(_source())
    if panel.texts:
        builder.mappings([_texts(panel.texts)])
    for index, query in enumerate(panel.queries):
        target = prometheus.Dataquery().expr(query.expr).ref_id(_REF_IDS[index])
        if panel.kind is Kind.TABLE:
            target.instant().format(PromQueryFormat.TABLE)
        elif panel.kind is Kind.TIMESERIES or "$__range" not in query.expr:
            target.range().legend_format(query.legend)
        else:
            target.instant().legend_format(query.legend)
        builder.with_target(target)
    return builder


def _timeseries(panel: Panel) -> timeseries.Panel:
    builder = (
        timeseries.Panel()
        .draw_style(shapes.GraphDrawStyle.LINE)
        .line_width(1)
        .fill_opacity(60 if panel.stacked else 8)
        .show_points(shapes.VisibilityMode.NEVER)
        .min(0)
        .legend(
            common.VizLegendOptions()
            .display_mode(shapes.LegendDisplayMode.LIST)
            .placement(shapes.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI))
    )
    if panel.stacked:
        builder.stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL))
    if panel.maximum is not None:
        builder.max(panel.maximum)
    if len(panel.queries) > 1 or panel.queries[0].legend in _NAMED_BY:
        for name, color in SERIES_COLORS.items():
            builder.override_by_name(name, [_fixed(color)])
    return builder


_NAMED_BY: Final = ("{{tier}}", "{{outcome}}", "{{state}}")
"""Legends of panels with one query that SERIES_COLORS knows."""


def _stat(panel: Panel) -> stat.Panel:
    several = len(panel.queries) > 1 or "{{" in panel.queries[0].legend
    return (
        stat.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_mode(shapes.BigValueColorMode.VALUE)
        .graph_mode(shapes.BigValueGraphMode.NONE if several else shapes.BigValueGraphMode.AREA)
        .text_mode(shapes.BigValueTextMode.VALUE_AND_NAME if several else shapes.BigValueTextMode.VALUE)
        .thresholds(_thresholds(panel))
    )


def _bargauge(panel: Panel) -> bargauge.Panel:
    return (
        bargauge.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .orientation(shapes.VizOrientation.HORIZONTAL)
        .min(0)
        .max(panel.maximum if panel.maximum is not None else 1)
        .thresholds(_thresholds(panel))
    )


def _table(panel: Panel) -> table.Panel:
    values = _value_names(panel)
    names = [values[column.source] if isinstance(column.source, int) else column.source for column in panel.columns]
    builder = (
        table.Panel()
        .show_header(True)
        .cell_height(shapes.TableCellHeight.SM)
        # Rows of all queries that agree on their labels become one.
        .with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            model.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {name: True for name in ("Time", *values) if name not in names},
                    "indexByName": {name: index for index, name in enumerate(names)},
                    "renameByName": {name: column.title for name, column in zip(names, panel.columns, strict=True)},
                },
            )
        )
    )
    for column in panel.columns:
        properties = [model.DynamicConfigValue(id_val="unit", value=column.unit)]
        if column.texts:
            properties.append(model.DynamicConfigValue(id_val="mappings", value=[_texts(column.texts)]))
        if column.unit is not Unit.COUNT or column.texts:
            builder.override_by_name(column.title, properties)
    return builder


def _value_names(panel: Panel) -> list[str]:
    """Columns with the values of the queries, as Grafana calls them."""
    if len(panel.queries) == 1:
        return ["Value"]
    return [f"Value #{_REF_IDS[index]}" for index in range(len(panel.queries))]


_MAKERS: Final[Mapping[Kind, Callable[[Panel], _Builder]]] = {
    Kind.TIMESERIES: _timeseries,
    Kind.STAT: _stat,
    Kind.BARGAUGE: _bargauge,
    Kind.TABLE: _table,
}


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [model.Threshold(value=step.value, color=step.color) for step in panel.steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)


def _texts(texts: Mapping[str, tuple[str, str]]) -> model.ValueMap:
    return model.ValueMap(
        options={
            value: model.ValueMappingResult(text=text, color=color, index=index)
            for index, (value, (text, color)) in enumerate(texts.items())
        }
    )


def _fixed(color: str) -> model.DynamicConfigValue:
    value: dict[str, Any] = {"mode": "fixed", "fixedColor": color}
    return model.DynamicConfigValue(id_val="color", value=value)
