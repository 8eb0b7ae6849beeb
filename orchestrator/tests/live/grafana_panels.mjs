// SPDX-License-Identifier: Apache-2.0
// What Grafana's own library makes of panels: their transformations, overrides and displayed texts.
//
//   node grafana_panels.mjs NODE_MODULES <panels.json >shown.json
//
// A panel: `transformations`, `fieldConfig`, and `frames`, the answers of its queries. Its result: the frames with their
// fields: `name` as shown, `type`, `hidden`, and of the first values `text`, `color` and `value`.
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';

const require = createRequire(`${process.argv[2]}/`);
const {
  applyFieldOverrides, createTheme, formattedValueToString, getFieldDisplayName, standardFieldConfigEditorRegistry,
  standardTransformers, standardTransformersRegistry, toDataFrame, transformDataFrame, FieldConfigOptionsRegistry,
} = require('@grafana/data');
const {lastValueFrom} = require('rxjs');

// The library reads a setting and the language from the browser.
globalThis.window = {};
globalThis.navigator ??= {language: 'en', languages: ['en']};
const VALUES = 50;
standardTransformersRegistry.setInit(() => [...new Set(Object.values(standardTransformers))]
  .map(transformation => ({id: transformation.id, name: transformation.name, transformation: async () => transformation, imageDark: '', imageLight: ''})));
const identity = value => value;
const property = (id, path = id) => ({id, path, name: id, process: identity, shouldApply: () => true});
const plain = ['unit', 'min', 'max', 'decimals', 'displayName', 'noValue', 'color', 'thresholds', 'mappings', 'links', 'filterable'].map(id => property(id));
standardFieldConfigEditorRegistry.setInit(() => plain);
const theme = createTheme();

/** Properties of one kind of panel, such as `custom.cellOptions`, as the panel registers them. */
function registryFor({defaults, overrides}) {
  const custom = [...Object.keys(defaults.custom ?? {}), ...overrides.flatMap(({properties}) => properties.map(({id}) => id))
    .filter(id => id.startsWith('custom.')).map(id => id.slice('custom.'.length))];
  const items = [...new Set(custom)].map(name => ({...property(`custom.${name}`, name), isCustom: true}));
  return new FieldConfigOptionsRegistry(() => [...plain, ...items]);
}

async function show({frames, transformations, fieldConfig}) {
  const data = frames.map(frame => toDataFrame(frame));
  const context = {interpolate: identity};
  const changed = await lastValueFrom(transformDataFrame(transformations ?? [], data, context));
  const shown = applyFieldOverrides({
    data: changed, fieldConfig, theme, replaceVariables: identity, fieldConfigRegistry: registryFor(fieldConfig), timeZone: 'utc',
  });
  return shown.map(frame => ({
    length: frame.length,
    fields: frame.fields.map(field => {
      const values = field.values.slice(0, VALUES), display = values.map(value => field.display(value));
      return {
        name: getFieldDisplayName(field, frame, shown), type: field.type, hidden: Boolean(field.config.custom?.hidden), value: values,
        custom: field.config.custom ?? {}, text: display.map(formattedValueToString), color: display.map(({color}) => color ?? null),
      };
    }),
  }));
}

const panels = JSON.parse(readFileSync(0, 'utf8'));
const result = {};
for (const [name, panel] of Object.entries(panels)) result[name] = await show(panel);
process.stdout.write(JSON.stringify(result));
