// A list of one kind: title, filter, table, and what it shows when there is nothing.
import type { ComponentChildren } from "preact";
import type { Collection } from "../api/watch.ts";
import type { KubeObject } from "../api/objects.ts";
import { t } from "../messages.ts";
import { compileFilter, type Filterable } from "../model/filter.ts";
import { here, setQuery } from "../router.ts";
import { Button } from "./Button.tsx";
import { Empty, Waiting } from "./Empty.tsx";
import { FilterBox } from "./FilterBox.tsx";
import { Grid, type Column } from "./Grid.tsx";
import { Page } from "./Page.tsx";

interface Props<R extends Filterable> {
  title: string;
  /** The collection that decides whether the list is there yet. */
  source: Collection<KubeObject>;
  rows: R[];
  columns: Column<R>[];
  keyOf: (row: R) => string;
  path?: (row: R) => string;
  menu?: (row: R) => ComponentChildren;
  actions?: ComponentChildren;
  empty: ComponentChildren;
  hint?: string;
  /** Between the title and the filter: parts of the page, a note. */
  before?: ComponentChildren;
  children?: ComponentChildren;
}

export function ListPage<R extends Filterable>(props: Props<R>) {
  const { title, source, rows, columns, keyOf, path, menu, actions, children } = props;
  const text = here.value.query.get("q") ?? "";
  const shown = rows.filter(compileFilter(text));
  const freshness = source.freshness.value;
  const waiting = (freshness === "loading" || freshness === "failed") && rows.length === 0;
  const none = <Empty icon="search" title={t("Nothing matches")} action={<Button onClick={() => setQuery({ q: null })}>{t("Clear the filter")}</Button>} />;
  const empty = waiting ? <Waiting freshness={freshness} error={source.error.value} /> : rows.length === 0 ? props.empty : none;
  return (
    <Page title={title} actions={actions} full>
      {props.before}
      <div class="toolbar">
        <FilterBox placeholder={props.hint} shown={shown.length} all={rows.length} />
      </div>
      <Grid label={title} columns={columns} rows={shown} keyOf={keyOf} path={path} menu={menu} empty={shown.length === 0 ? empty : undefined} />
      {children}
    </Page>
  );
}
