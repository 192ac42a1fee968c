import { useEffect, useState } from "preact/hooks";
import { t } from "../messages.ts";
import { formatBytes } from "../model/quantity.ts";
import { columnOf, type Series, type SeriesLoader, type Span } from "../model/series.ts";
import { here, setQuery } from "../router.ts";
import { Button } from "./Button.tsx";
import { Chart } from "./Chart.tsx";
import { ErrorNote } from "./Note.tsx";

interface Props {
  load: SeriesLoader;
  /** Whose charts these are. */
  of: string;
  /** Cores and memory that there are. */
  cores?: number;
  memory?: number;
  /** How many requests one refresh takes: more of them come less often. */
  requests?: number;
}

const AGAIN: Record<Span, number> = { "1h": 10_000, "24h": 60_000 };
const SPANS: [Span, string][] = [["1h", "Last hour"], ["24h", "Last day"]];

const cores = (value: number): string => `${value.toLocaleString(undefined, { maximumFractionDigits: 2 })} ${t("cores")}`;
const rate = (value: number): string => `${formatBytes(value)}/s`;

/** Processor, memory, disks and networks over the last hour or day. */
export function UsageCharts({ load, of, cores: allCores, memory, requests = 1 }: Props) {
  const span: Span = here.value.query.get("span") === "24h" ? "24h" : "1h";
  const [series, setSeries] = useState<Series | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    let wanted = true;
    const refresh = async () => {
      if (document.hidden) return;
      try {
        const found = await load(span);
        if (wanted) (setSeries(found), setError(null));
      } catch (failure) {
        if (wanted) setError(failure);
      }
    };
    void refresh();
    const timer = setInterval(() => void refresh(), Math.max(AGAIN[span], requests * 2000));
    return () => {
      wanted = false;
      clearInterval(timer);
    };
  }, [of, span]);
  if (error && !series) return <ErrorNote error={error} />;
  const few = !series || (series.values[0]?.length ?? 0) < 2;
  return (
    <section class="card" aria-label={t("Usage")}>
      <header>
        <h2>{t("Usage")}</h2>
        <div class="group row" role="group" aria-label={t("Time span")}>
          {SPANS.map(([value, label]) => (
            <Button key={value} small pressed={value === span} onClick={() => setQuery({ span: value === "1h" ? null : value })}>
              {t(label)}
            </Button>
          ))}
        </div>
      </header>
      {few ? (
        <p class="body muted" role="status">
          {series ? t("The first figures appear within a minute.") : t("Loading…")}
        </p>
      ) : (
        <div class="body charts">
          <Chart title={t("Processor")} start={series.start} step={series.step} show={cores} most={allCores} lines={[{ label: t("used"), values: columnOf(series, "cpu") }]} />
          <Chart title={t("Memory")} start={series.start} step={series.step} show={formatBytes} most={memory} lines={[{ label: t("used"), values: columnOf(series, "memory") }]} />
          <Chart
            title={t("Disks")} start={series.start} step={series.step} show={rate}
            lines={[{ label: t("read"), values: columnOf(series, "diskRead") }, { label: t("written"), values: columnOf(series, "diskWrite") }]}
          />
          <Chart
            title={t("Networks")} start={series.start} step={series.step} show={rate}
            lines={[{ label: t("received"), values: columnOf(series, "networkReceive") }, { label: t("sent"), values: columnOf(series, "networkTransmit") }]}
          />
        </div>
      )}
    </section>
  );
}
