import { signal } from "@preact/signals";
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Icon } from "./icon";

const open = signal<{ key: number; body: VNode }[]>([]);
let nextKey = 1;

/** Shows a dialog; `make` gets the function that closes it. */
export function openDialog(make: (close: () => void) => VNode): void {
  const key = nextKey;
  nextKey += 1;
  const close = () => {
    open.value = open.value.filter((dialog) => dialog.key !== key);
  };
  open.value = [...open.value, { key, body: make(close) }];
}

/** The place where dialogs are drawn. */
export function Dialogs() {
  return (
    <>
      {open.value.map(({ key, body }) => (
        <div key={key}>{body}</div>
      ))}
    </>
  );
}

interface Props {
  title: string;
  close(): void;
  children: ComponentChildren;
  /** The buttons. */
  foot?: ComponentChildren;
  kind?: "plain" | "drawer";
  onSubmit?(): void;
}

/** A native dialog: it keeps the focus, and Escape closes it. */
export function Dialog({ title, close, children, foot, kind = "plain", onSubmit }: Props) {
  const ref = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useEffect(() => {
    ref.current?.showModal();
  }, []);
  return (
    <dialog
      ref={ref}
      class={`dialog ${kind}`}
      aria-labelledby={titleId}
      onClose={close}
      onClick={(event) => event.target === ref.current && kind === "drawer" && close()}
    >
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          onSubmit?.();
        }}
      >
        <div class="dialog-head">
          <h2 id={titleId}>{title}</h2>
          <button type="button" class="icon-button" aria-label="Close" onClick={close}>
            <Icon name="close" />
          </button>
        </div>
        <div class="dialog-body">{children}</div>
        {foot && <div class="dialog-foot">{foot}</div>}
      </form>
    </dialog>
  );
}
