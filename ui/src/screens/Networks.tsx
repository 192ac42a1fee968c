import type { VNode } from "preact";
import { ADDRESS_POOL, BALANCER, UPLINK } from "../api/kinds.ts";
import { may } from "../api/session.ts";
import { t } from "../messages.ts";
import { href } from "../router.ts";
import { BalancerList } from "./network/BalancerList.tsx";
import { NetworkList } from "./network/NetworkList.tsx";
import { PoolList } from "./network/PoolList.tsx";
import { UplinkList } from "./network/UplinkList.tsx";

const PARTS = [
  { id: "", label: "Networks of machines", List: NetworkList },
  { id: "uplinks", label: "Uplinks", List: UplinkList, kind: UPLINK },
  { id: "pools", label: "Addresses", List: PoolList, kind: ADDRESS_POOL },
  { id: "balancers", label: "Load balancers", List: BalancerList, kind: BALANCER },
];

export function Networks({ words }: { words: string[] }): VNode {
  const shown = PARTS.filter(({ kind }) => !kind || may("list", kind.group, kind.plural));
  const { List, id } = shown.find((one) => one.id === words[1]) ?? PARTS[0];
  const tabs = (
    <nav class="tabs" aria-label={t("Parts of the page")}>
      {shown.map((one) => (
        <a key={one.id} href={href(one.id ? `/networks/${one.id}` : "/networks")} aria-current={one.id === id ? "page" : undefined}>
          {t(one.label)}
        </a>
      ))}
    </nav>
  );
  return <List tabs={tabs} />;
}
