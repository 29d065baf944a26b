import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.io.Text;
import org.apache.nutch.crawl.AdaptiveFetchSchedule;
import org.apache.nutch.crawl.CrawlDatum;
import org.apache.nutch.crawl.FetchSchedule;

/**
 * Nutch's own AdaptiveFetchSchedule, asked line by line.
 *
 * First it prints its defaults: interval, shortest and longest one in seconds, and the rates of
 * increase, decrease and synchronisation. In: interval_seconds modified_ms fetched_ms changed
 * longest_seconds increase decrease synchronisation. Out: interval_seconds modified_ms due_ms.
 */
public class Schedule {
  private static final String ADAPTIVE = "db.fetch.schedule.adaptive.";

  public static void main(String[] arguments) throws Exception {
    Configuration settings = new Configuration(false);
    settings.addResource("nutch-default.xml");
    System.out.println(
        settings.get("db.fetch.interval.default")
            + " " + settings.get(ADAPTIVE + "min_interval")
            + " " + settings.get(ADAPTIVE + "max_interval")
            + " " + settings.get(ADAPTIVE + "inc_rate")
            + " " + settings.get(ADAPTIVE + "dec_rate")
            + " " + settings.get(ADAPTIVE + "sync_delta_rate")
            + " " + settings.get(ADAPTIVE + "sync_delta"));
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] asked = line.split(" ");
      settings.set(ADAPTIVE + "max_interval", asked[4]);
      settings.set(ADAPTIVE + "inc_rate", asked[5]);
      settings.set(ADAPTIVE + "dec_rate", asked[6]);
      settings.set(ADAPTIVE + "sync_delta_rate", asked[7]);
      settings.setBoolean(ADAPTIVE + "sync_delta", Double.parseDouble(asked[7]) > 0.0);
      System.out.println(next(settings, asked));
    }
  }

  private static String next(Configuration settings, String[] asked) {
    AdaptiveFetchSchedule schedule = new AdaptiveFetchSchedule();
    schedule.setConf(settings);
    long modified = Long.parseLong(asked[1]);
    long fetched = Long.parseLong(asked[2]);
    CrawlDatum page = new CrawlDatum();
    page.setFetchInterval(Float.parseFloat(asked[0]));
    int state =
        asked[3].equals("1") ? FetchSchedule.STATUS_MODIFIED : FetchSchedule.STATUS_NOTMODIFIED;
    schedule.setFetchSchedule(
        new Text("https://a.example/"), page, fetched, modified, fetched, modified, state);
    return page.getFetchInterval() + " " + page.getModifiedTime() + " " + page.getFetchTime();
  }
}
