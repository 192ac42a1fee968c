import { age, exactTime } from "../model/quantity.ts";
import { clock } from "../model/media.ts";

/** How long ago something was; the exact time is its title. */
export function Age({ time }: { time: string | undefined }) {
  return (
    <time dateTime={time} title={exactTime(time)} class="nowrap">
      {age(time, Math.max(clock.value, Date.now()))}
    </time>
  );
}
