import { MACHINE } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import { YamlEditor } from "../../components/YamlEditor.tsx";
import type { MachineRow } from "../../model/machine.ts";

export function MachineYaml({ row }: { row: MachineRow }) {
  const object = { apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", ...row.machine };
  return <YamlEditor kind={MACHINE} object={object} readOnly={!may("update", "kubevirt.io", "virtualmachines")} />;
}
