import { notAllowed } from "../actions/remove.ts";
import { useState } from "preact/hooks";
import { mergePatch, warnings } from "../api/http.ts";
import { pathOf, SETTING } from "../api/kinds.ts";
import type { Setting } from "../api/types.ts";
import { useCollection } from "../api/watch.ts";
import { Empty } from "../components/Empty.tsx";
import { Field } from "../components/Field.tsx";
import { FormDialog } from "../components/FormDialog.tsx";
import type { Column } from "../components/Grid.tsx";
import { ListPage } from "../components/ListPage.tsx";
import { Menu, type MenuItem } from "../components/Menu.tsx";
import { t } from "../messages.ts";
import { begin, perform, update } from "../model/activity.ts";
import type { Filterable } from "../model/filter.ts";

interface SettingRow extends Filterable {
  setting: Setting;
  value: string;
  changed: boolean;
}

function rowOf(setting: Setting): SettingRow {
  const value = setting.value || setting.default || "";
  const changed = Boolean(setting.value) && setting.value !== setting.default;
  return { setting, value, changed, text: `${setting.metadata.name} ${value}`.toLowerCase(), fields: { changed: changed ? "yes" : "no" } };
}

const COLUMNS: Column<SettingRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(200px, 1fr)", sort: (row) => row.setting.metadata.name, cell: (row) => <b>{row.setting.metadata.name}</b>, phone: "first" },
  { id: "value", label: t("Value"), width: "minmax(200px, 2fr)", cell: (row) => <span class="mono">{row.value || <span class="faint">{t("empty")}</span>}</span>, phone: "second" },
  { id: "changed", label: t("Changed"), width: "80px", sort: (row) => (row.changed ? 0 : 1), cell: (row) => (row.changed ? t("yes") : <span class="faint">{t("default")}</span>) },
];

export function Settings() {
  const settings = useCollection<Setting>(SETTING);
  const [edited, setEdited] = useState<Setting | null>(null);
  const menu = (row: SettingRow) => {
    const { name } = row.setting.metadata;
    const reset = () => perform(`${t("Reset")}: ${name}`, () => mergePatch(pathOf(SETTING, "", name), { value: "" }), { command: `sheaf setting set ${name} ""` });
    const items: MenuItem[] = [
      { label: t("Edit…"), icon: "edit", disabled: notAllowed("patch", SETTING), run: () => setEdited(row.setting) },
      { label: t("Back to the default"), icon: "undo", disabled: row.changed ? notAllowed("patch", SETTING) : t("It is the default"), run: () => void reset() },
    ];
    return <Menu label={t("Actions of {name}", { name })} items={items} />;
  };
  return (
    <ListPage
      title={t("Settings")}
      source={settings}
      rows={[...settings.items.values()].map(rowOf)}
      columns={COLUMNS}
      keyOf={(row) => row.setting.metadata.name}
      menu={menu}
      hint={t("Filter: name, changed:yes")}
      empty={<Empty icon="settings" title={t("No settings")} />}
    >
      {edited && <EditSetting setting={edited} onClose={() => setEdited(null)} />}
    </ListPage>
  );
}

function EditSetting({ setting, onClose }: { setting: Setting; onClose: () => void }) {
  const { name } = setting.metadata;
  const [value, setValue] = useState(setting.value || setting.default || "");
  const submit = async () => {
    warnings.value = [];
    await mergePatch(pathOf(SETTING, "", name), { value });
    update(begin(t("Saved: {name}", { name }), { note: warnings.value.join(" ") || undefined }), { state: "done" });
  };
  return (
    <FormDialog title={name} action={t("Save")} submit={submit} onClose={onClose}>
      <Field label={t("Value")} hint={setting.default ? t("The default is {value}", { value: setting.default }) : undefined}>
        <textarea class="input" rows={value.length > 60 ? 8 : 2} value={value} onInput={(event) => setValue(event.currentTarget.value)} />
      </Field>
    </FormDialog>
  );
}
