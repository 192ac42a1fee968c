import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { receiverMenu } from "../../actions/receiver.tsx";
import { RECEIVER } from "../../api/kinds.ts";
import { may } from "../../api/session.ts";
import type { AlarmReceiver } from "../../api/types.ts";
import { useCollection } from "../../api/watch.ts";
import { Age } from "../../components/Age.tsx";
import { Button } from "../../components/Button.tsx";
import { Empty } from "../../components/Empty.tsx";
import type { Column } from "../../components/Grid.tsx";
import { ListPage } from "../../components/ListPage.tsx";
import { Menu } from "../../components/Menu.tsx";
import { StatusMark } from "../../components/StatusMark.tsx";
import { t } from "../../messages.ts";
import type { Filterable } from "../../model/filter.ts";
import { addressText, receiverStatus, sendsText } from "../../model/receiver.ts";
import { NewReceiver } from "./NewReceiver.tsx";

interface ReceiverRow extends Filterable {
  receiver: AlarmReceiver;
}

const COLUMNS: Column<ReceiverRow>[] = [
  { id: "name", label: t("Name"), width: "minmax(110px, 0.8fr)", sort: (row) => row.receiver.metadata.name, cell: (row) => <b>{row.receiver.metadata.name}</b>, phone: "first" },
  { id: "state", label: t("Last message"), width: "minmax(180px, 2.4fr)", sort: (row) => receiverStatus(row.receiver).word, cell: (row) => <StatusMark status={receiverStatus(row.receiver)} reason />, phone: "second" },
  { id: "address", label: t("Sends to"), width: "minmax(150px, 1.2fr)", cell: (row) => <span class="mono">{addressText(row.receiver)}</span> },
  { id: "format", label: t("Format"), width: "110px", sort: (row) => row.receiver.spec?.format ?? "", cell: (row) => row.receiver.spec?.format },
  { id: "sends", label: t("Alarms"), width: "80px", cell: (row) => t(sendsText(row.receiver)) },
  { id: "open", label: t("Open"), width: "56px", right: true, cell: (row) => row.receiver.status?.announced?.length ?? 0 },
  { id: "delivered", label: t("Delivered"), width: "80px", right: true, cell: (row) => <Age time={row.receiver.status?.lastDelivery} /> },
];

/** Webhooks that alarms are sent to. */
export function ReceiverList({ tabs }: { tabs: ComponentChildren }) {
  const receivers = useCollection<AlarmReceiver>(RECEIVER);
  const [adding, setAdding] = useState(false);
  const rows = [...receivers.items.values()].map((receiver): ReceiverRow => {
    const { word } = receiverStatus(receiver);
    return { receiver, text: `${receiver.metadata.name} ${addressText(receiver)} ${receiver.spec?.format ?? ""}`.toLowerCase(), fields: { status: word, format: receiver.spec?.format } };
  });
  const add = may("create", RECEIVER.group, RECEIVER.plural) && (
    <Button icon="plus" look="primary" onClick={() => setAdding(true)}>
      {t("Add receiver")}
    </Button>
  );
  return (
    <ListPage
      title={t("Alarms")}
      source={receivers}
      rows={rows}
      columns={COLUMNS}
      keyOf={(row) => row.receiver.metadata.name}
      menu={(row) => <Menu label={t("Actions of {name}", { name: row.receiver.metadata.name })} items={() => receiverMenu(row.receiver)} />}
      actions={add}
      before={tabs}
      empty={
        <Empty icon="bell" title={t("No receivers yet")} command="sheaf alarm receiver add ops --url https://alertmanager.example/webhook">
          {t("A receiver is a webhook that every alarm is sent to when it begins and when it ends: Alertmanager, a chat, ntfy.")}
        </Empty>
      }
    >
      {adding && <NewReceiver onClose={() => setAdding(false)} />}
    </ListPage>
  );
}
