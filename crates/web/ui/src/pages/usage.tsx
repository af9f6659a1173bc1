import { useCustomers } from "../clusters/customers";
import { shellWord } from "../names";
import { Pick } from "../parts/form";
import { AsCli, PageHead } from "../parts/panel";
import { location, setQuery } from "../router";
import { mayCall, ownCustomer } from "../roles";
import { useCall } from "../use-call";
import { BreachesPanel } from "../usage/breaches";
import { hours } from "../usage/figures";
import { months, thisMonth, usePeriod } from "../usage/period";
import { SumsPanel } from "../usage/sums";
import { TermsPanel } from "../usage/terms";

const SHOWN_MONTHS = 24;

export function UsagePage() {
  const period = usePeriod();
  const own = ownCustomer();
  const customer = own || (location.value.query.get("customer") ?? "");
  const customers = useCustomers();
  const { startTime, endTime, month } = period;
  const called = useCall("MeteringService/SumUsage", { startTime, endTime, customer }, { everyMs: 60_000 });
  const names = customer === "" || customers.includes(customer) ? customers : [...customers, customer];
  const options = `--from ${startTime.slice(0, 10)}${endTime ? ` --to ${endTime.slice(0, 10)}` : ""}${own === "" && customer !== "" ? ` --customer ${shellWord(customer)}` : ""}`;
  return (
    <>
      <PageHead title="Usage">
        {called.data
          ? `${hours(called.data.total?.nodeSeconds)} node-hours in ${month}, ${hours(called.data.total?.reservedNodeSeconds)} of them under a term`
          : `Reading the usage of ${month}`}
      </PageHead>
      <div class="toolbar">
        <Pick
          label="month, UTC"
          value={month}
          set={(value) => setQuery({ month: value === thisMonth() ? null : value })}
          options={[...new Set([...months(SHOWN_MONTHS), month])].map((one): [string, string] => [
            one,
            one === thisMonth() ? `${one}, so far` : one,
          ])}
        />
        {own === "" && (
          <Pick
            label="customer"
            value={customer}
            set={(value) => setQuery({ customer: value })}
            options={[["", "all"], ...names.map((name): [string, string] => [name, name])]}
          />
        )}
      </div>
      <SumsPanel called={called} month={month} isOwn={own !== ""} />
      <BreachesPanel period={period} customer={customer} isOwn={own !== ""} />
      {mayCall("MeteringService/ListTerms") && <TermsPanel customer={customer} changed={called.reload} />}
      <AsCli
        commands={[
          `rackwright usage sum ${options}`,
          `rackwright usage breaches ${options}`,
          ...(mayCall("MeteringService/ListTerms") ? ["rackwright usage term list"] : []),
        ]}
      />
    </>
  );
}
