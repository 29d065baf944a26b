// A fleet in Java, on URLFrontier's own client: crawls what it is given, as StormCrawler's parts do.
import crawlercommons.urlfrontier.CrawlID;
import crawlercommons.urlfrontier.URLFrontierGrpc;
import crawlercommons.urlfrontier.Urlfrontier.*;
import io.grpc.ManagedChannelBuilder;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.StreamObserver;
import java.util.ArrayList;
import java.util.concurrent.CountDownLatch;

public class Fleet {
    public static void main(String[] args) throws Exception {
        var channel = ManagedChannelBuilder.forTarget(args[0]).usePlaintext().build();
        var frontier = URLFrontierGrpc.newBlockingStub(channel).withWaitForReady();
        var params = GetParams.newBuilder().setMaxUrlsPerQueue(2).setMaxQueues(10)
                .setDelayRequestable(120).setCrawlID(CrawlID.DEFAULT).build();
        var got = new ArrayList<URLInfo>();
        while (got.size() < Integer.parseInt(args[1])) {
            frontier.getURLs(params).forEachRemaining(got::add);
        }

        var done = new CountDownLatch(1);
        var acks = new StreamObserver<AckMessage>() {
            public void onNext(AckMessage ack) {
                System.out.println("put " + ack.getID() + " " + ack.getStatus());
            }
            public void onError(Throwable error) {
                System.out.println("put failed: " + error);
                done.countDown();
            }
            public void onCompleted() {
                done.countDown();
            }
        };
        var items = URLFrontierGrpc.newStub(channel).withWaitForReady().putURLs(acks);
        for (var info : got) {
            var said = StringList.newBuilder().addValues("a digest").build();
            var known = KnownURLItem.newBuilder().setRefetchableFromDate(1)
                    .setInfo(info.toBuilder().putMetadata("signature", said));
            items.onNext(URLItem.newBuilder().setKnown(known).setID(info.getUrl()).build());
        }
        items.onCompleted();
        done.await();

        String host = got.get(0).getKey();
        frontier.blockQueueUntil(BlockQueueParams.newBuilder().setKey(host).setTime(1).build());
        frontier.setDelay(QueueDelayParams.newBuilder().setKey(host).setDelayRequestable(9).build());
        frontier.setActive(Active.newBuilder().setState(false).build());
        System.out.println("active " + frontier.getActive(Local.getDefaultInstance()).getState());
        System.out.println("crawls " + frontier.listCrawls(Local.getDefaultInstance()).getValuesList());
        try {
            frontier.deleteCrawl(DeleteCrawlMessage.getDefaultInstance());
        } catch (StatusRuntimeException error) {
            System.out.println("delete " + error.getStatus().getCode());
        }
        channel.shutdownNow();
    }
}
