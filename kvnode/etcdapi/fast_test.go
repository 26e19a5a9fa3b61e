package etcdapi

import (
	"fmt"
	"testing"
)

// What holds for calls holds for what comes by a stream: these are the tests of calls. Some
// of them ask for something that needs a call; what waits for a permission does not wait
// under the lease.
func TestAsCallsByAStream(t *testing.T) {
	for _, c := range []struct {
		name         string
		test         func(*testing.T)
		calls, waits bool
	}{
		{name: "words", test: TestInvalidRequestsAreRefusedInTheWordsOfEtcd, calls: true},
		{name: "huge messages", test: TestMessagesBeyondTheAllowanceAreCutOffByGRPC, calls: true},
		{name: "reads that are not admitted", test: TestReadsThatWereNotAdmittedMayBeRetried, calls: true},
		{name: "a response of another kind", test: TestResponseOfAnotherKindIsAnInternalError},
		{name: "no leader", test: TestRequestsThatRequireALeaderAreRefusedWithoutOne},
		{name: "panics", test: TestRequestThatPanicsDoesNotEndTheProcess, waits: true},
		{name: "too many", test: TestRequestsUnderWayAreBounded, waits: true},
		{name: "replies that wait", test: TestRepliesThatWaitAreNotUnderWay, calls: true},
		{name: "what is admitted", test: TestWhatIsAdmittedTakesItsTime},
		{name: "a client", test: TestEtcdClientPutsGetsDeletesAndCompacts, calls: true},
		{name: "gets and ranges", test: TestGetOfOneKeyAgreesWithRange},
		{name: "transactions that read", test: TestTransactionsThatOnlyReadAreReads},
		{name: "local transactions", test: TestOnlySerializableTransactionsAreLocal},
		{name: "RangeStream", test: TestRangeStreamMergesIntoRange, calls: true},
		{name: "read modes", test: TestMetadataChoosesHowToRead, calls: true},
		{name: "trailers", test: TestTrailersOnDemand, calls: true},
		{name: "an unknown mode", test: TestUnknownReadModeIsNamed},
		{name: "fetched afterwards", test: TestValueIsFetchedAfterAdmission},
		{name: "replayed", test: TestNothingIsAnsweredBeforeTheLogIsApplied, calls: true, waits: true},
		{name: "large replies", test: TestRepliesStayWithinTheirBound, calls: true},
		{name: "counted", test: TestRequestsAreCounted},
		{name: "TTL leases", test: TestTheTTLLeaseServiceThroughAClient},
		{name: "what was before", test: TestPrevKVOfWhatIsCompacted, calls: true},
		{name: "the quota", test: TestQuotaRefusesGrowthAndRaisesTheAlarm, calls: true},
	} {
		for _, leased := range []bool{false, true} {
			if c.waits && leased {
				continue
			}
			t.Run(fmt.Sprintf("%s, leased %v", c.name, leased), func(t *testing.T) {
				streamed.on, streamed.leased = true, leased
				defer func() { streamed.on = false }()
				streamed.calls.Store(0)
				c.test(t)
				if n := streamed.calls.Load(); n > 0 && !c.calls {
					t.Errorf("%d requests were calls, want all by the stream", n)
				}
			})
		}
	}
}
