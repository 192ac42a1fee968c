import { MACHINE } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import { YamlEditor } from "../../components/YamlEditor.tsx";
import { restoredYaml } from "../../model/history.ts";
import type { MachineRow } from "../../model/machine.ts";
import { here, setQuery } from "../../router.ts";
import { useVersions } from "./History.tsx";

/** The machine as YAML; `?version=3` begins with the specification of that version, to be reviewed and saved. */
export function MachineYaml({ row }: { row: MachineRow }) {
  const number = here.value.query.get("version");
  return number === null ? <Own row={row} /> : <Restored row={row} number={Number(number)} />;
}

const objectOf = (row: MachineRow) => ({ apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", ...row.machine });
const mayUpdate = () => may("update", MACHINE.group, MACHINE.plural);

function Own({ row }: { row: MachineRow }) {
  return <YamlEditor kind={MACHINE} object={objectOf(row)} readOnly={!mayUpdate()} />;
}

function Restored({ row, number }: { row: MachineRow; number: number }) {
  const { versions } = useVersions(row);
  const version = versions.find((one) => one.number === number);
  if (!version || !mayUpdate()) return <Own row={row} />;
  const object = objectOf(row);
  return <YamlEditor key={number} kind={MACHINE} object={object} proposal={restoredYaml(object, version)} onDone={() => setQuery({ version: null })} />;
}
