import { MACHINE_ACTIONS, refusalOf, runAction } from "../actions/machine.tsx";
import { t } from "../messages.ts";
import type { MachineRow } from "../model/machine.ts";
import { href, machinePath } from "../router.ts";
import { copyText } from "./Copy.tsx";
import { Menu, type MenuItem } from "./Menu.tsx";

/** Everything that can be done to a machine. */
export function MachineMenu({ row, open = true }: { row: MachineRow; open?: boolean }) {
  const items = (): MenuItem[] => [
    ...(open ? [{ label: t("Open console"), icon: "monitor" as const, href: href(machinePath(row.namespace, row.name, "console")) }] : []),
    ...MACHINE_ACTIONS.map((action) => ({
      label: t(action.label),
      icon: action.icon,
      danger: action.danger,
      separated: action.separated,
      disabled: refusalOf(action, row),
      run: () => void runAction(action, [row]),
    })),
    {
      label: t("Copy kubectl command"), icon: "clipboard", separated: true,
      run: () => void copyText(`kubectl get vm ${row.name} -n ${row.namespace} -o yaml`),
    },
  ];
  return <Menu label={t("Actions of {name}", { name: row.name })} items={items} />;
}
