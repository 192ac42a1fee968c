import { NAMESPACE } from "../api/kinds.ts";
import { projects } from "../api/session.ts";
import { useCollection } from "../api/watch.ts";

/** Namespaces that belong to the system are not for machines. */
const SYSTEM = /^(kube-|cattle-|longhorn-system$|harvester-system$|harvester-public$|fleet-|local$|cdi$|kubevirt$)/;

export const isSystem = (namespace: string): boolean => SYSTEM.test(namespace);

interface Props {
  value: string;
  onChange: (name: string) => void;
  [attribute: string]: unknown;
}

export function NamespaceSelect({ value, onChange, ...attributes }: Props) {
  const namespaces = useCollection(NAMESPACE);
  const names = projects.value ?? [...namespaces.items.keys()].filter((name) => !isSystem(name)).sort();
  // Who may not list namespaces can still name one.
  if (names.length === 0) {
    return <input class="input" {...attributes} value={value} onInput={(event) => onChange(event.currentTarget.value)} />;
  }
  return (
    <select class="input" {...attributes} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
      {names.map((name) => (
        <option key={name}>{name}</option>
      ))}
    </select>
  );
}
