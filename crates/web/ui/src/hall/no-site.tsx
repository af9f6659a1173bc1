import { Empty } from "../parts/problem";

/** No site file is applied. */
export function NoSite({ what }: { what: string }) {
  return (
    <Empty title={`No site file is applied, so ${what} are unknown`}>
      <p>
        <code>rackwright site apply FILE</code> applies a site file; <code>rackwright site generate</code> writes a first one, and{" "}
        <code>rackwright site import</code> makes one from NetBox or from a dump of the fabric.
      </p>
    </Empty>
  );
}
