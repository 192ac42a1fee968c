import { MACHINE } from "../../api/kinds.ts";
import type { Machine } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { t } from "../../messages.ts";

interface Props {
  namespace: string;
  value: string;
  onChange: (name: string) => void;
  [attribute: string]: unknown;
}

/** One of the machines of a project. */
export function MachineSelect({ namespace, value, onChange, ...attributes }: Props) {
  const machines = useCollection<Machine>(MACHINE);
  const names = [...machines.items.values()].filter((one) => one.metadata.namespace === namespace).map((one) => one.metadata.name).sort();
  return (
    <select class="input" {...attributes} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
      <option value="">{names.length === 0 ? t("No machines in this project") : t("Choose a machine")}</option>
      {names.map((name) => (
        <option key={name}>{name}</option>
      ))}
    </select>
  );
}
