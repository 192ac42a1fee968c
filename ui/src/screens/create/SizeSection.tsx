import type { InstanceType, Network } from "../../api/types.ts";
import { Field } from "../../components/Field.tsx";
import { t } from "../../messages.ts";
import type { Draft } from "../../model/draft.ts";
import { formatBytes, parseQuantity } from "../../model/quantity.ts";
import { Choices } from "./Choices.tsx";

/** The types that most machines need; the rest are in the list. */
const USUAL = ["u1.nano", "u1.micro", "u1.small", "u1.medium", "u1.large", "u1.xlarge"];

interface Props {
  draft: Draft;
  change: (part: Partial<Draft>) => void;
  types: InstanceType[];
  networks: Network[];
}

const about = (type: InstanceType) => `${type.spec?.cpu?.guest ?? "?"} CPU · ${formatBytes(parseQuantity(type.spec?.memory?.guest as string))}`;

export function SizeSection({ draft, change, types, networks }: Props) {
  const byName = new Map(types.map((type) => [type.metadata.name, type]));
  const tiles = USUAL.flatMap((name) => {
    const type = byName.get(name);
    return type ? [{ id: name, title: name, about: about(type) }] : [];
  });
  const options = [{ id: "", title: "Custom", about: `${draft.cpus} CPU · ${formatBytes(draft.memoryMi * 2 ** 20)}` }, ...tiles];
  if (draft.size !== "" && !USUAL.includes(draft.size)) {
    const type = byName.get(draft.size);
    options.push({ id: draft.size, title: draft.size, about: type ? about(type) : "" });
  }
  const nameOf = (network: Network) => `${network.metadata.namespace}/${network.metadata.name}`;
  const toggle = (name: string) =>
    change({ networks: draft.networks.includes(name) ? draft.networks.filter((one) => one !== name) : [...draft.networks, name] });
  return (
    <section class="card">
      <header>
        <h2>{t("Size and networks")}</h2>
      </header>
      <div class="body stack">
        <Choices label={t("Size")} value={draft.size} options={options} onChange={(size) => change({ size })} />
        {draft.size === "" ? (
          <div class="fields">
            <Field label={t("CPUs")}>
              <input class="input" type="number" min="1" max="256" value={draft.cpus} onInput={(event) => change({ cpus: Number(event.currentTarget.value) })} />
            </Field>
            <Field label={t("Memory in Mi")}>
              <input class="input" type="number" min="16" step="128" value={draft.memoryMi} onInput={(event) => change({ memoryMi: Number(event.currentTarget.value) })} />
            </Field>
          </div>
        ) : (
          <Field label={t("All instance types")}>
            <select class="input" value={draft.size} onChange={(event) => change({ size: event.currentTarget.value })}>
              {types.map((type) => (
                <option key={type.metadata.name} value={type.metadata.name}>{`${type.metadata.name} (${about(type)})`}</option>
              ))}
            </select>
          </Field>
        )}
        {networks.length > 0 && (
          <fieldset class="plain-set stack tight">
            <legend>{t("Networks besides the guest network")}</legend>
            {networks.map((network) => (
              <label key={nameOf(network)} class="check">
                <input type="checkbox" checked={draft.networks.includes(nameOf(network))} onChange={() => toggle(nameOf(network))} />
                {nameOf(network)}
              </label>
            ))}
          </fieldset>
        )}
      </div>
    </section>
  );
}
