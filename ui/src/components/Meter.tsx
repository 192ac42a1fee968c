/** A bar: how much of something is used. Above 80 % and 95 % it changes its tone. */
export function Meter({ value, of, label, plain = false }: { value: number; of: number; label: string; plain?: boolean }) {
  const part = of > 0 ? Math.min(1, value / of) : 0;
  const tone = plain ? "" : part > 0.95 ? " bad" : part > 0.8 ? " warn" : "";
  return (
    <div
      class={`meter${tone}`}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(part * 100)}
    >
      <div style={{ width: `${part * 100}%` }} />
    </div>
  );
}
