"""Write the dashboards of Grafana, which the package ships: `python tests/golden/make_dashboards.py`.

Needs grafana-foundation-sdk, which has Grafana's own schema. A test of `make test-frameworks` compares the files with
what this makes, and asks Prometheus each query after a real run.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "dataaudit/live/dashboards"
OF = 'run=~"$run",rank=~"$rank"'
LAYERS, HEADS = 'stat=~".*layers_(min|mean|max)"', 'stat=~".*heads_(min|mean|max)"'
WHERE, SEGMENTS = "{{run}} {{stat}}", "dataaudit_train_loss_raw_segments_bucket"


def gauge(metric, more="", legend=WHERE, unit="short"):
    """Return title, query, legend and unit of a metric's newest values."""
    return metric, f"dataaudit_{metric}{{{OF}{',' * bool(more)}{more}}}", legend, unit


DASHBOARDS = {
    "training": (
        "Training run",
        {
            "Loss": [
                gauge("train_loss_raw", unit="none"),
                gauge("val_loss", unit="none"),
                gauge("loss_by_source", unit="none"),
                (
                    "train_loss_raw of segments, 95th percentile of 5 minutes",
                    f"histogram_quantile(0.95, sum by (run, le) (rate({SEGMENTS}{{{OF}}}[5m])))",
                    "{{run}}",
                    "none",
                ),
            ],
            "Data": [
                gauge("source_mix_share", unit="percentunit"),
                gauge("dataloader_stall_frac", unit="percentunit"),
                gauge("tokens_per_sec", unit="none"),
                gauge("tokens_seen"),
            ],
            "Optimizer": [
                gauge("learning_rate", unit="none"),
                gauge("grad_global_norm", unit="none"),
                gauge("skipped_updates", unit="none"),
                gauge("step_time", unit="s"),
            ],
            "What happened": [
                ("events of 5 minutes", f"increase(dataaudit_events_total{{{OF}}}[5m])", "{{run}} {{kind}}", "none"),
                ("step", f"dataaudit_step{{{OF}}}", "{{run}} rank {{rank}}", "none"),
                ("values that Prometheus did not get", f"dataaudit_lost_total{{{OF}}}", "{{run}} {{what}}", "none"),
            ],
        },
    ),
    "vitals": (
        "Vitals of a model",
        {
            "Attention": [
                gauge("max_attn_logit", HEADS),
                gauge("attn_entropy", HEADS),
                gauge("dead_head_rate", HEADS, unit="percentunit"),
            ],
            "Activations": [
                gauge("residual_rms", LAYERS),
                gauge("activation_mean_abs", LAYERS),
                gauge("activation_outlier_rate", LAYERS, unit="percentunit"),
                gauge("dead_neuron_count", LAYERS),
            ],
            "Weights and gradients": [
                gauge("grad_norm", LAYERS),
                gauge("update_to_weight", LAYERS),
                gauge("grad_to_weight", LAYERS),
                gauge("layer_std", LAYERS),
                gauge("opt_state_finite", LAYERS),
                gauge("nan_inf_events", unit="none"),
            ],
        },
    ),
}
"""Title and rows of each dashboard; a panel has a title, a query, a legend and a unit."""


def made(name):
    """Return a dashboard as the text of its file."""
    from grafana_foundation_sdk.builders import dashboard, prometheus, timeseries
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.common import VisibilityMode
    from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

    source = DataSourceRef(type_val="prometheus", uid="${source}")
    title, rows = DASHBOARDS[name]
    own = dashboard.Dashboard(f"dataaudit: {title}").uid(f"dataaudit-{name}").tags(["dataaudit"]).refresh("30s")
    own = own.time("now-6h", "now").with_variable(dashboard.DatasourceVariable("source").type("prometheus"))
    for label in ("run", "rank"):
        variable = dashboard.QueryVariable(label).query(f"label_values(dataaudit_step, {label})").datasource(source)
        own = own.with_variable(
            variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).include_all(True).multi(True).all_value(".*")
        )
    for row, panels in rows.items():
        own = own.with_row(dashboard.Row(row))
        for what, query, legend, unit in panels:
            target = prometheus.Dataquery().expr(query).ref_id("A").legend_format(legend).datasource(source)
            panel = timeseries.Panel().title(what).datasource(source).unit(unit).with_target(target)
            own = own.with_panel(panel.show_points(VisibilityMode.NEVER).span(12).height(8))
    return JSONEncoder(sort_keys=True, indent=2).encode(own.build()) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in DASHBOARDS:
        (FOLDER / f"{each}.json").write_text(made(each), "utf-8")
