import { signal, type Signal } from "@preact/signals";
import { asApiError, type ApiError } from "../errors";
import type { Row } from "../fleet/row";
import type { Values, Verb } from "./verb";

const AT_ONCE = 6;

export interface Failure {
  row: Row;
  error: ApiError;
}

/** A verb at work on nodes. */
export interface Run {
  total: number;
  done: Signal<number>;
  failures: Signal<Failure[]>;
  finished: Promise<void>;
}

/** Sends the verb to every node, some at a time. A refusal for one node does not stop the others. */
export function start(verb: Verb, rows: Row[], values: Values): Run {
  const done = signal(0);
  const failures = signal<Failure[]>([]);
  const queue = [...rows];
  const work = async () => {
    for (let row = queue.shift(); row !== undefined; row = queue.shift()) {
      try {
        await verb.send(row, values);
      } catch (error) {
        failures.value = [...failures.value, { row, error: asApiError(error, verb.id) }];
      }
      done.value += 1;
    }
  };
  const finished = Promise.all(Array.from({ length: AT_ONCE }, work)).then(() => undefined);
  return { total: rows.length, done, failures, finished };
}
