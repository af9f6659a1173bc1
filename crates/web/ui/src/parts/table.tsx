import type { ComponentChildren } from "preact";

export interface Column<T> {
  title: string;
  cell(row: T): ComponentChildren;
  isNumber?: boolean;
  /** Long words may be broken anywhere. */
  isText?: boolean;
  /** Left out below 700 px. */
  isWide?: boolean;
}

/** A small table. Long lists have their own, which keeps only the visible rows. */
export function Table<T>({
  caption,
  columns,
  rows,
  keyOf,
}: {
  caption: string;
  columns: Column<T>[];
  rows: T[];
  keyOf(row: T, index: number): string | number;
}) {
  // Buttons stand at the right edge, as numbers do.
  const kind = (column: Column<T>) =>
    [column.isNumber || column.title === "actions" ? "number" : "", column.isText ? "text" : "", column.isWide ? "wide" : ""]
      .filter(Boolean)
      .join(" ") || undefined;
  return (
    <div class="table-scroll" tabIndex={0} role="group" aria-label={caption}>
      <table class="table">
        <caption class="sr">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.title} scope="col" class={kind(column)}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={keyOf(row, index)}>
              {columns.map((column) => (
                <td key={column.title} class={kind(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
