package etcdapi

import (
	"fmt"
	"testing"
)

// What holds for calls holds for what comes by a stream: these are the tests of calls. What
// waits for a permission does not wait under the lease.
func TestAsCallsByAStream(t *testing.T) {
	whole := 0
	for _, c := range []struct {
		name  string
		test  func(*testing.T)
		waits bool
	}{
		{name: "words", test: TestInvalidRequestsAreRefusedInTheWordsOfEtcd},
		{name: "huge messages", test: TestMessagesBeyondTheAllowanceAreCutOffByGRPC},
		{name: "reads that are not admitted", test: TestReadsThatWereNotAdmittedMayBeRetried},
		{name: "a response of another kind", test: TestResponseOfAnotherKindIsAnInternalError},
		{name: "no leader", test: TestRequestsThatRequireALeaderAreRefusedWithoutOne},
		{name: "panics", test: TestRequestThatPanicsDoesNotEndTheProcess, waits: true},
		{name: "too many", test: TestRequestsUnderWayAreBounded, waits: true},
		{name: "replies that wait", test: TestRepliesThatWaitAreNotUnderWay},
		{name: "what is admitted", test: TestWhatIsAdmittedTakesItsTime},
		{name: "a client", test: TestEtcdClientPutsGetsDeletesAndCompacts},
		{name: "gets and ranges", test: TestGetOfOneKeyAgreesWithRange},
		{name: "transactions that read", test: TestTransactionsThatOnlyReadAreReads},
		{name: "local transactions", test: TestOnlySerializableTransactionsAreLocal},
		{name: "RangeStream", test: TestRangeStreamMergesIntoRange},
		{name: "read modes", test: TestMetadataChoosesHowToRead},
		{name: "trailers", test: TestTrailersOnDemand},
		{name: "an unknown mode", test: TestUnknownReadModeIsNamed},
		{name: "fetched afterwards", test: TestValueIsFetchedAfterAdmission},
		{name: "replayed", test: TestNothingIsAnsweredBeforeTheLogIsApplied, waits: true},
		{name: "large replies", test: TestRepliesStayWithinTheirBound},
		{name: "counted", test: TestRequestsAreCounted},
		{name: "TTL leases", test: TestTheTTLLeaseServiceThroughAClient},
		{name: "what was before", test: TestPrevKVOfWhatIsCompacted},
		{name: "the quota", test: TestQuotaRefusesGrowthAndRaisesTheAlarm},
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
				if streamed.calls.Load() == 0 {
					whole++
				}
			})
		}
	}
	// On a machine that stands still for a second requests are calls, so not each is asked.
	if whole == 0 {
		t.Error("in each test there were calls: the stream is not used")
	}
}
