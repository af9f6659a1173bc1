import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { asApiError, type ApiError } from "../errors";
import { Button } from "./button";
import { Dialog } from "./dialog";
import { AsCli } from "./panel";
import { Problem } from "./problem";

interface Props<T> {
  /** "Release alpha": also on the button. */
  title: string;
  close(): void;
  /** What happens, in a sentence or two. */
  effect: ComponentChildren;
  /** What is lost; empty: nothing. */
  loses?: ComponentChildren;
  /** The name to be typed before data are destroyed; empty: none. */
  typed?: string;
  /** Why it cannot be sent yet; empty: it can. */
  why?: string;
  isDanger?: boolean;
  commands: string[];
  send(): Promise<T>;
  done?(response: T): void;
  /** Fields. */
  children?: ComponentChildren;
}

/** Says what a change does and what it destroys, asks, and sends it. A refusal is shown here. */
export function ConfirmDialog<T>(props: Props<T>) {
  const {
    title,
    close,
    effect,
    loses = "",
    typed = "",
    why = "",
    isDanger = loses !== "",
    commands,
    send,
    done,
    children,
  } = props;
  const [given, setGiven] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const reason = why || (typed !== "" && given.trim() !== typed ? `Type ${typed} to confirm` : "");
  const submit = async () => {
    if (reason !== "" || isBusy) {
      return;
    }
    setBusy(true);
    setError(null);
    try {
      const response = await send();
      close();
      done?.(response);
    } catch (failure) {
      setError(asApiError(failure, title));
      setBusy(false);
    }
  };
  return (
    <Dialog
      title={title}
      close={close}
      onSubmit={() => void submit()}
      foot={
        <>
          <Button onClick={close}>Cancel</Button>
          <Button type="submit" kind={isDanger ? "danger" : "primary"} why={reason} isBusy={isBusy}>
            {title}
          </Button>
        </>
      }
    >
      <div>{effect}</div>
      {children}
      {loses && (
        <div class="loss">
          <p>
            <strong>Lost:</strong> {loses}.
          </p>
        </div>
      )}
      {typed !== "" && (
        <label class="field">
          <span>
            Type the name, <strong class="name">{typed}</strong>, to confirm
          </span>
          <input
            type="text"
            autocomplete="off"
            spellcheck={false}
            value={given}
            onInput={(event) => setGiven(event.currentTarget.value)}
          />
        </label>
      )}
      <Problem error={error} />
      <AsCli commands={commands} />
    </Dialog>
  );
}
