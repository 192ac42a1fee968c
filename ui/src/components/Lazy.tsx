import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { MachineRow } from "../model/machine.ts";

type Part = ComponentType<{ row: MachineRow }>;

/** A part of a machine's page whose code is loaded when it is first shown. */
export function Lazy({ load, row }: { load: () => Promise<Part>; row: MachineRow }) {
  const [loaded, setLoaded] = useState<{ part: Part } | null>(null);
  useEffect(() => {
    let wanted = true;
    void load().then((part) => wanted && setLoaded({ part }));
    return () => {
      wanted = false;
    };
  }, [load]);
  if (!loaded) return null;
  const Show = loaded.part;
  return <Show row={row} />;
}
