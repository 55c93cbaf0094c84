import java.rmi.RemoteException;
import java.rmi.registry.LocateRegistry;
import java.rmi.registry.Registry;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;
import javax.rmi.ssl.SslRMIClientSocketFactory;

/** Reads all MBeans of mdserver, as jconsole does, and tries to make one. Arguments: URL, tls|plain, user, password. */
public final class JmxClient {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> environment = new HashMap<>();
        if (arguments[1].equals("tls")) {
            environment.put("com.sun.jndi.rmi.factory.socket", new SslRMIClientSocketFactory());
        }
        if (arguments.length > 2) {
            environment.put(JMXConnector.CREDENTIALS, new String[] {arguments[2], arguments[3]});
        }
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(arguments[0]), environment)) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            for (ObjectName name : new TreeSet<>(server.queryNames(new ObjectName("mdserver:*"), null))) {
                for (MBeanAttributeInfo one : server.getMBeanInfo(name).getAttributes()) {
                    System.out.println(name + "\t" + one.getName() + "\t" + server.getAttribute(name, one.getName()));
                }
            }
            try {
                server.createMBean("javax.management.loading.MLet", new ObjectName("mdserver:type=Evil"));
                System.out.println("made");
            } catch (SecurityException error) {
                System.out.println("refused\t" + error.getMessage());
            }
            String[] place = arguments[0].replaceFirst(".*/jndi/rmi://", "").split("[:/]");
            Registry registry =
                    arguments[1].equals("tls")
                            ? LocateRegistry.getRegistry(place[0], Integer.parseInt(place[1]), new SslRMIClientSocketFactory())
                            : LocateRegistry.getRegistry(place[0], Integer.parseInt(place[1]));
            try {
                registry.rebind("jmxrmi", registry.lookup("jmxrmi"));
                System.out.println("bound");
            } catch (RemoteException error) {
                System.out.println("not bound");
            }
        } catch (SecurityException error) {
            System.out.println("denied\t" + error.getMessage());
        }
    }
}
