import { answeredAt, connection, probeNow } from "../connection";
import { session } from "../session";
import { age, everySecond, stamp } from "../time";
import { Button } from "./button";
import { Glyph } from "./state";

/** Says that the connection is lost, or that the control plane does nothing. */
export function Banner() {
  const state = connection.value;
  const isPaused = session.value?.controlPaused ?? false;
  return (
    <div role="status">
      {!state.isUp && <Lost since={state.since} retryAt={state.retryAt} />}
      {isPaused && (
        <div class="banner" data-tone="busy">
          <Glyph tone="busy" />
          <p>
            The control plane is paused: it answers reads, refuses changes and touches no machine. An operator ends the
            pause by <code>rackwright control resume</code>.
          </p>
        </div>
      )}
    </div>
  );
}

function Lost({ since, retryAt }: { since: number; retryAt: number }) {
  const now = everySecond.value;
  const left = Math.ceil((retryAt - now) / 1_000);
  return (
    <div class="banner" data-tone="bad">
      <Glyph tone="bad" />
      <p>
        The control plane has not answered for {age((now - since) / 1_000)}. What you see is from{" "}
        {stamp(new Date(answeredAt).toISOString())}. {left > 0 ? `Next try in ${left} s.` : "Trying now."}
      </p>
      <Button kind="quiet" onClick={probeNow}>
        Try now
      </Button>
    </div>
  );
}
