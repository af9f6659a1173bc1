import { eventsCommand, LiveEvents } from "../activity/events";
import { Operations, useOperationFilter } from "../activity/operations";
import { shellWord } from "../names";
import { AsCli, PageHead } from "../parts/panel";
import { location, setQuery } from "../router";
import { mayCall } from "../roles";

export function ActivityPage() {
  const { query } = location.value;
  const hasOperations = mayCall("OperationService/ListOperations");
  const isEvents = !hasOperations || query.get("view") === "events";
  const filter = useOperationFilter();
  const commands = isEvents
    ? [eventsCommand(query)]
    : [`rackwright operation list${filter ? ` --filter ${shellWord(filter)}` : ""}`];
  return (
    <>
      <PageHead
        title="Activity"
        side={
          hasOperations && (
            <div class="segments" role="group" aria-label="View">
              <button type="button" aria-pressed={!isEvents} onClick={() => setQuery({ view: null })}>
                Operations
              </button>
              <button type="button" aria-pressed={isEvents} onClick={() => setQuery({ view: "events" })}>
                Events
              </button>
            </div>
          )
        }
      >
        {isEvents ? "What happens, as it happens" : "Work that was requested, and what became of it"}
      </PageHead>
      {isEvents ? <LiveEvents /> : <Operations />}
      <AsCli commands={commands} />
    </>
  );
}
