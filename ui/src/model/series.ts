// What hosts and machines used lately: loaded from the server, added up over hosts.
import { get } from "../api/http.ts";

export type Span = "1h" | "24h";

export interface Series {
  /** When the first value was, in seconds since 1970. */
  start: number;
  /** Seconds from one value to the next. */
  step: number;
  columns: string[];
  /** By column, oldest first; null where nothing was measured. */
  values: (number | null)[][];
}

export type SeriesLoader = (span: Span) => Promise<Series>;

const ROOT = "/apis/metrics.sheaf.io/v1";

export const nodeSeries = (name: string): SeriesLoader => (span) => get<Series>(`${ROOT}/nodes/${encodeURIComponent(name)}/series`, { query: { span } });

export const machineSeries = (namespace: string, name: string): SeriesLoader => (span) =>
  get<Series>(`${ROOT}/namespaces/${encodeURIComponent(namespace)}/virtualmachineinstances/${encodeURIComponent(name)}/series`, { query: { span } });

/** All hosts as one; those that do not answer are left out. */
export const clusterSeries = (names: string[]): SeriesLoader => async (span) => {
  const found = await Promise.all(names.map((name) => nodeSeries(name)(span).catch(() => null)));
  return addSeries(found.filter((one) => one !== null));
};

/** Values of the same moment added up. */
export function addSeries(all: Series[]): Series {
  const [first] = all;
  if (!first) return { start: 0, step: 1, columns: [], values: [] };
  const { step, columns } = first;
  const start = Math.min(...all.map((one) => one.start));
  const end = Math.max(...all.map((one) => one.start + (one.values[0]?.length ?? 0) * step));
  const length = Math.round((end - start) / step);
  const values = columns.map((_, column) => {
    const sum: (number | null)[] = Array.from({ length }, () => null);
    for (const one of all) {
      const shift = Math.round((one.start - start) / step);
      one.values[column]?.forEach((value, index) => {
        if (value !== null) sum[index + shift] = (sum[index + shift] ?? 0) + value;
      });
    }
    return sum;
  });
  return { start, step, columns, values };
}

export const columnOf = (series: Series, name: string): (number | null)[] => series.values[series.columns.indexOf(name)] ?? [];

/** The newest value that is known. */
export const latest = (values: (number | null)[]): number | null => values.findLast((value) => value !== null) ?? null;

/** A round number that is not below the greatest value. */
export function ceiling(greatest: number): number {
  if (!(greatest > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(greatest));
  return ([1, 2, 5, 10].find((factor) => factor * unit >= greatest * 0.999) ?? 10) * unit;
}

/** Lines of an SVG for values, with a break where one is unknown. */
export function linePath(values: (number | null)[], most: number, width: number, height: number): string {
  const across = values.length > 1 ? width / (values.length - 1) : 0;
  let path = "";
  let pen = false;
  values.forEach((value, index) => {
    if (value === null) {
      pen = false;
      return;
    }
    const y = height - (Math.min(value, most) / most) * height;
    path += `${pen ? "L" : "M"}${(index * across).toFixed(1)} ${y.toFixed(1)}`;
    pen = true;
  });
  return path;
}
