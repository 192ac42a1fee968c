import { CopyButton } from "../../components/Copy.tsx";
import { t } from "../../messages.ts";
import type { MachineRow } from "../../model/machine.ts";

interface Shown {
  name: string;
  network: string;
  binding: string;
  model: string;
  mac: string;
  addresses: string[];
}

function interfacesOf(row: MachineRow): Shown[] {
  const spec = row.machine.spec?.template?.spec;
  const live = (row.instance?.status?.interfaces ?? []) as { name?: string; mac?: string; ipAddresses?: string[]; ipAddress?: string }[];
  return (spec?.domain?.devices?.interfaces ?? []).map((one) => {
    const network = spec?.networks?.find((candidate) => candidate.name === one.name);
    const status = live.find((candidate) => candidate.name === one.name);
    const binding = ["masquerade", "bridge", "sriov", "passt"].find((name) => name in one) ?? "";
    return {
      name: one.name,
      network: network?.multus?.networkName ?? (network?.pod ? t("guest network of the host") : "–"),
      binding,
      model: one.model ?? "virtio",
      mac: status?.mac ?? one.macAddress ?? "–",
      addresses: status?.ipAddresses ?? (status?.ipAddress ? [status.ipAddress] : []),
    };
  });
}

export function MachineNetworks({ row }: { row: MachineRow }) {
  const shown = interfacesOf(row);
  return (
    <section class="card scroll-x">
      <table class="plain">
        <thead>
          <tr>
            {["Interface", "Network", "Binding", "Model", "MAC", "Addresses"].map((label) => (
              <th key={label}>{t(label)}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((one) => (
            <tr key={one.name}>
              <td>
                <b>{one.name}</b>
              </td>
              <td>{one.network}</td>
              <td>{one.binding}</td>
              <td>{one.model}</td>
              <td class="mono">{one.mac}</td>
              <td class="mono">
                {one.addresses.length === 0 && "–"}
                {one.addresses.map((address) => (
                  <span key={address} class="row">
                    {address}
                    <CopyButton text={address} label={t("Copy address")} />
                  </span>
                ))}
              </td>
            </tr>
          ))}
          {shown.length === 0 && (
            <tr>
              <td colSpan={6} class="muted">
                {t("The machine has no network.")}
              </td>
            </tr>
          )}
        </tbody>
      </table>
    </section>
  );
}
