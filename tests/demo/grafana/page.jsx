// The dashboard of the chart, drawn by Grafana's own libraries without a Grafana server.
//
// @grafana/scenes lays out the panels, the variables and the time range, as it does in Grafana. @grafana/ui draws graphs
// and tables. What this file adds is what the server and its built-in plugins do: it registers both kinds of panel with
// Grafana's default settings, and queries Prometheus. The address: /?prometheus=HOST:PORT&from=now-5m

import {
  applyNullInsertThreshold, createTheme, EventBusSrv, FieldConfigProperty, FieldType, identityOverrideProcessor,
  LoadingState, PanelPlugin, standardFieldConfigEditorRegistry, standardTransformers,
  standardTransformersRegistry, ThemeContext, thresholdsOverrideProcessor, toDataFrame, unitOverrideProcessor,
} from '@grafana/data';
import * as runtime from '@grafana/runtime';
import {
  DataSourceVariable, EmbeddedScene, QueryVariable, RuntimeDataSource, sceneGraph, SceneControlsSpacer,
  SceneDataTransformer, SceneGridItem, SceneGridLayout, SceneQueryRunner, SceneRefreshPicker, SceneTimePicker,
  SceneTimeRange, sceneUtils, SceneVariableSet, VariableValueSelectors, VizPanel,
} from '@grafana/scenes';
import { GlobalStyles, Table, TimeSeries } from '@grafana/ui';
import { createRoot } from 'react-dom/client';
import { BrowserRouter } from 'react-router-dom';
import { from } from 'rxjs';

import dashboard from './dashboard.json';

const parameters = new URLSearchParams(window.location.search);
const SCRAPE_INTERVAL = 15; // The default of Grafana's data source, in seconds.
const theme = createTheme({ colors: { mode: 'light' } });

// A setting of a field. The page has no editor, so only the default and the conversion matter.
const setting = (path, more = {}) => ({
  id: path, path, name: path, editor: () => null, override: () => null, process: identityOverrideProcessor,
  shouldApply: () => true, ...more,
});

const register = () => {
  standardFieldConfigEditorRegistry.setInit(() => [
    ...['color', 'decimals', 'displayName', 'max', 'min'].map((path) => setting(path)),
    setting('mappings', { defaultValue: [] }),
    setting('thresholds', {
      defaultValue: { mode: 'absolute', steps: [{ value: -Infinity, color: 'green' }] },
      process: thresholdsOverrideProcessor,
    }),
    setting('unit', { process: unitOverrideProcessor, shouldApply: (field) => field.type === FieldType.number }),
  ]);
  standardTransformersRegistry.setInit(() => [
    { id: 'organize', name: 'organize', transformation: standardTransformers.organizeFieldsTransformer },
  ]);
};

const Graph = ({ data, height, options, timeRange, timeZone, width }) => {
  if (!data.series.length) {
    return (
      <div style={{ alignItems: 'center', display: 'flex', height: '100%', justifyContent: 'center' }}>No data</div>
    );
  }
  // As in Grafana, the line is interrupted where values are missing.
  const frames = data.series.map((frame) => applyNullInsertThreshold({ frame }));
  return (
    <TimeSeries
      frames={frames} height={height} legend={options.legend} options={options} structureRev={data.structureRev}
      timeRange={timeRange} timeZone={timeZone} width={width}
    />
  );
};

const Rows = ({ data, height, width }) =>
  data.series.length ? <Table ariaLabel="" data={data.series[0]} height={height} width={width} /> : null;

// Grafana's defaults of the field settings of its panels.
const GRAPH = {
  axisPlacement: 'auto', drawStyle: 'line', fillOpacity: 0, gradientMode: 'none',
  hideFrom: { legend: false, tooltip: false, viz: false }, lineInterpolation: 'linear', lineWidth: 1, pointSize: 5,
  scaleDistribution: { type: 'linear' }, showPoints: 'auto', spanNulls: false, stacking: { group: 'A', mode: 'none' },
};
const TABLE = { align: 'auto', cellOptions: { type: 'auto' }, width: undefined };
const LEGEND = { calcs: [], displayMode: 'list', placement: 'bottom', showLegend: true };

const fields = (defaults) => (builder) => {
  for (const [path, defaultValue] of Object.entries(defaults)) {
    builder.addCustomEditor(setting(path, { defaultValue }));
  }
};

const plugins = () => ({
  timeseries: new PanelPlugin(Graph)
    .setPanelOptions((builder) => builder.addCustomEditor(setting('legend', { defaultValue: LEGEND })))
    .useFieldConfig({
      standardOptions: { [FieldConfigProperty.Color]: { defaultValue: { mode: 'palette-classic' } } },
      useCustomConfig: fields(GRAPH),
    }),
  table: new PanelPlugin(Rows).useFieldConfig({ useCustomConfig: fields(TABLE) }),
});

const get = async (path, query) => {
  const address = `http://${parameters.get('prometheus')}/api/v1/${path}?${new URLSearchParams(query)}`;
  const answer = await (await fetch(address)).json();
  if (answer.status !== 'success') {
    throw new Error(answer.error);
  }
  return answer.data;
};

const table = (series) => {
  const labels = [...new Set(series.flatMap(({ metric }) => Object.keys(metric)))];
  return toDataFrame({
    fields: [
      { name: 'Time', type: FieldType.time, values: series.map(({ value }) => value[0] * 1000) },
      ...labels.map((name) => ({ name, type: FieldType.string, values: series.map(({ metric }) => metric[name]) })),
      { name: 'Value', type: FieldType.number, values: series.map(({ value }) => Number(value[1])) },
    ],
  });
};

const line = ({ metric, values }, legend, step) => {
  const name = legend.replace(/{{(\w+)}}/g, (_, label) => metric[label] ?? '');
  return toDataFrame({
    name,
    fields: [
      { name: 'Time', type: FieldType.time, config: { interval: step * 1000 },
        values: values.map(([time]) => time * 1000) },
      { name: 'Value', type: FieldType.number, config: { displayNameFromDS: name }, labels: metric,
        values: values.map(([, value]) => Number(value)) },
    ],
  });
};

class Prometheus extends RuntimeDataSource {
  async query(request) {
    return { data: (await Promise.all(request.targets.map((target) => this.frames(target, request)))).flat() };
  }

  async frames(target, { intervalMs, range, scopedVars }) {
    const step = Math.max(intervalMs / 1000, 1);
    const rateInterval = `${Math.max(step + SCRAPE_INTERVAL, 4 * SCRAPE_INTERVAL)}s`;
    const scope = { ...scopedVars, __rate_interval: { value: rateInterval } };
    const query = sceneGraph.interpolate(scopedVars.__sceneObject.value.valueOf(), target.expr, scope, 'regex');
    const end = range.to.valueOf() / 1000;
    if (target.instant) {
      return [table((await get('query', { query, time: end })).result)];
    }
    const start = Math.floor(range.from.valueOf() / 1000 / step) * step;
    const { result } = await get('query_range', { query, start, end, step });
    return result.map((series) => line(series, target.legendFormat, step));
  }

  async metricFindQuery({ query }) {
    const [, metric, label] = query.match(/^label_values\((\w+), (\w+)\)$/);
    return (await get(`label/${label}/values`, { 'match[]': metric })).map((text) => ({ text }));
  }
}

// Scenes ask these services of a Grafana server.
const serve = () => {
  const source = new Prometheus('prometheus', 'prometheus');
  const settings = { name: 'Prometheus', type: 'prometheus', uid: source.uid, isDefault: true, meta: source.meta };
  sceneUtils.registerRuntimeDataSource({ dataSource: source });
  runtime.setDataSourceSrv({
    get: async () => source, getInstanceSettings: () => settings, getList: () => [settings], reload: () => {},
  });
  runtime.setAppEvents(new EventBusSrv());
  runtime.setRunRequest((dataSource, request) =>
    from(
      dataSource.query(request).then(
        ({ data }) => ({ state: LoadingState.Done, series: data, timeRange: request.range, request }),
        (error) => ({ state: LoadingState.Error, series: [], errors: [error], timeRange: request.range, request })
      )
    )
  );
  runtime.setPluginImportUtils({ getPanelPluginFromCache: () => undefined });
  for (const [pluginId, plugin] of Object.entries(plugins())) {
    sceneUtils.registerRuntimePanelPlugin({ pluginId, plugin });
  }
};

const variable = ({ type, query, multi, includeAll, ...more }) =>
  type === 'datasource'
    ? new DataSourceVariable({ name: more.name, label: more.label, pluginId: query })
    : new QueryVariable({ ...more, query, isMulti: multi, includeAll, defaultToAll: includeAll });

const panel = ({ datasource, description, fieldConfig, gridPos, targets, title, transformations = [], type }) =>
  new SceneGridItem({
    x: gridPos.x, y: gridPos.y, width: gridPos.w, height: gridPos.h,
    body: new VizPanel({
      $data: new SceneDataTransformer({
        $data: new SceneQueryRunner({ datasource, queries: targets, maxDataPoints: 400 }), transformations,
      }),
      description, fieldConfig, options: {}, pluginId: type, title,
    }),
  });

register();
serve();
const scene = new EmbeddedScene({
  $timeRange: new SceneTimeRange({ from: parameters.get('from'), to: 'now', timeZone: 'utc' }),
  $variables: new SceneVariableSet({ variables: dashboard.templating.list.map(variable) }),
  controls: [
    new VariableValueSelectors({}), new SceneControlsSpacer(), new SceneTimePicker({}), new SceneRefreshPicker({}),
  ],
  body: new SceneGridLayout({ children: dashboard.panels.map(panel) }),
});
createRoot(document.getElementById('root')).render(
  <ThemeContext.Provider value={theme}>
    <BrowserRouter>
      <GlobalStyles />
      <div style={{ background: theme.colors.background.canvas, display: 'flex', minHeight: '100vh', padding: 16 }}>
        <scene.Component model={scene} />
      </div>
    </BrowserRouter>
  </ThemeContext.Provider>
);
