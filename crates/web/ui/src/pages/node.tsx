import type { PageProps } from "../routes";

export function NodePage({ params }: PageProps) {
  return <h1>{params["name"]}</h1>;
}
